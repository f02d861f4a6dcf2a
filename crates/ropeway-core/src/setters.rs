//! The `with_*` methods of settings types.

/// Implements builder methods that each set one field: `method(argument: Type) => field = value;`.
///
/// The short form `method => field: Type,` takes anything that converts into the field's type.
#[macro_export]
macro_rules! setters {
    (@impl [$($generics:tt)*] $type:ty {
        $($(#[$meta:meta])* $method:ident($($arg:ident: $arg_type:ty),+) => $($field:ident).+ = $value:expr;)+
    }) => {
        impl $($generics)* $type {
            $(
                $(#[$meta])*
                #[must_use = "returns the changed value"]
                pub fn $method(mut self, $($arg: $arg_type),+) -> Self {
                    self.$($field).+ = $value;
                    self
                }
            )+
        }
    };
    (<$life:lifetime> $type:ty { $($methods:tt)+ }) => {
        $crate::setters!(@impl [<$life>] $type { $($methods)+ });
    };
    ($type:ty { $($method:ident => $field:ident: $value:ty,)+ }) => {
        $crate::setters!(@impl [] $type { $(
            #[doc = concat!("Sets the field `", stringify!($field), "`.")]
            $method($field: impl Into<$value>) => $field = $field.into();
        )+ });
    };
    ($type:ty { $($methods:tt)+ }) => {
        $crate::setters!(@impl [] $type { $($methods)+ });
    };
}

pub use setters;
