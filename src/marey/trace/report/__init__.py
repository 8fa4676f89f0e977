"""What a run is reported as: document, HTML page, words, differences of two runs."""
