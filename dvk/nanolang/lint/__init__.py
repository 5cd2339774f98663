"""Static checks of nano's texts: a text that cannot run is refused before it is compiled."""
