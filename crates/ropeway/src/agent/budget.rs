//! A budget: how much of a tool's output reaches the model, and what is said of the rest.
