"""Views: posteriors that change a few answers of another posterior."""
