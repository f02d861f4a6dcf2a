//! `From` implementations of one line.

/// Implements `From` for each listed type: `argument: Type => value;`.
macro_rules! conversions {
    ($to:ty { $($from:ident: $from_type:ty => $value:expr;)+ }) => {
        $(
            impl From<$from_type> for $to {
                fn from($from: $from_type) -> Self {
                    $value
                }
            }
        )+
    };
}

pub(crate) use conversions;
