"""Basic tools: checks of arguments, devices, files, terminal, linear algebra, drawing."""
