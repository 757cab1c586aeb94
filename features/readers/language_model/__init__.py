"""Reader of language models' `config.json`, without transformers and without torch."""
