"""Complete answers: the predictions of all predictors for a query, each with a grade of trust."""
