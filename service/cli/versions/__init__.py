"""Commands that make versions of the predictors and put them into use."""
