//! The `with_*` methods of settings types.

/// Implements one `with_*` method for each listed field. The methods take anything that converts into the field's type.
macro_rules! setters {
    ($type:ty { $($method:ident => $field:ident: $value:ty,)+ }) => {
        impl $type {
            $(
                #[doc = concat!("Sets the field `", stringify!($field), "`.")]
                #[must_use]
                pub fn $method(mut self, $field: impl Into<$value>) -> Self {
                    self.$field = $field.into();
                    self
                }
            )+
        }
    };
}

pub(crate) use setters;
