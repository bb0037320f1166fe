"""The mathematics: no files, no screens, nothing of the data's whereabouts."""
