"""The file formats: what a JSON file may hold, and the published JSON Schemas."""
