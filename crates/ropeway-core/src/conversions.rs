//! Macros for one-line `From` implementations and for enum variant names.

/// Implements `From` for each listed type: `argument: Type => value;`.
#[macro_export]
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

/// Names an enum's variants: `method: "what the name is" { Variant => "name"; }`. Implements the method, and `parse`.
#[macro_export]
macro_rules! names {
    ($visibility:vis $type:ty, $method:ident: $what:literal { $($variant:ident => $name:literal;)+ }) => {
        impl $type {
            #[doc = concat!("Returns ", $what, ".")]
            $visibility fn $method(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            #[doc = concat!("Finds a value by ", $what, ".")]
            $visibility fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

pub use conversions;
pub use names;
