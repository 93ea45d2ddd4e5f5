"""What several stores share: URLs, listings, settling, event texts, statement files."""
