"""Client of the HTTP interface; `forerun.client` offers its names."""
