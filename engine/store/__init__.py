"""Registrations and detections at rest, behind `store.DetectionStore`. SQLite (WAL) or PostgreSQL, one schema."""
