//! Ignition configs as a declaration of what should be there.
