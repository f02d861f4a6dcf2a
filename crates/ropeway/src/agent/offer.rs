//! An offer: the tools as one turn's model sees them, listed or to be searched.
