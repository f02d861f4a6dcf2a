//! Spilled outputs: what was too large for the model, kept in files that it can page through.
