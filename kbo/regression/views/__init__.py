"""Views: posteriors that change a few numbers of another posterior."""
