"""What experiments print and draw: tables, pictures of lines, and the line style of every method."""
