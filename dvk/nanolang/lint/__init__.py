"""Static checks of nano's texts: what cannot run is refused before a compiler is asked."""
