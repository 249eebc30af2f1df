//! The offline half from the outside: trees in, trees out.

mod cases;
mod command;
mod crash;
mod enablement;
mod hostile;
mod laws;
mod support;
