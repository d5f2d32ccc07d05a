"""One file that brings the project and all its packages to where no index can be reached."""
