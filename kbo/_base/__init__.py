"""What every part of kbo stands on: checks of arguments, devices, files, terminal, linear algebra, drawing."""
