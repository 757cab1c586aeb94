"""The domain of a training set: ranges of features, and how unlike a device is to those in it."""
