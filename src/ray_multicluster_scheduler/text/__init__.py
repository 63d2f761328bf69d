"""Text for people: what they may have meant, and what is safe to show them."""
