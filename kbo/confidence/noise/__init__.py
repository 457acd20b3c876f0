"""Unknown noise: bounds of the noise level, and confidence sequences that use them."""
