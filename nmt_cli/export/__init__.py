"""Trained models in the formats of other libraries, each proven equal to the model that it was made from."""
