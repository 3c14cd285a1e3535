"""The settings that come with the project, read as package data."""
