from forerun.models.colocation import ColocationBoost as ColocationNetwork
