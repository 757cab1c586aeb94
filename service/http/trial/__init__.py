"""A second version of the predictors on trial next to the champion, as canary and as shadow."""
