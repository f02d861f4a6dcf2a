//! What one server sends is bounded: descriptors, memory, rates, and calls that are made once.

mod floods;
mod hostile;
mod pace;
mod resend;
mod sizes;
