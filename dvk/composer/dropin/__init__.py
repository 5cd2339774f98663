"""The drop-in file: the module, its forward, the functions and the user's source in one namespace."""
