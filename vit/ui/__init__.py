"""The page: shared pieces (header, photo, theme, words) and one file per tab."""
