"""Export of trained models to other libraries, each verified to be equal to its source model."""
