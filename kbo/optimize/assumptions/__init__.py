"""What a user assumes about a measured quantity: kernel, noise level and norm bound."""
