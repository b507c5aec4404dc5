"""Rule passes: each module fills the tables it owns."""
