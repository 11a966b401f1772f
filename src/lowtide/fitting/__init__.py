"""Will it fit? A step captured without weights, planned for a device that is not here."""
