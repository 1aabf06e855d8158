//! The budget on a paused clock, with a store that does as it is told.
