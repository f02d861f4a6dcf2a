//! Limits on what one server can cause: descriptors, memory, rates and repeated calls.

mod floods;
mod hostile;
mod pace;
mod resend;
mod sizes;
