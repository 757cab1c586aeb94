"""Work, memory and times of training steps of language models, by layout."""
