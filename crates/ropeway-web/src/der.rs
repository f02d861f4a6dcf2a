//! DER, the encoding for certificates and keys ([ITU-T X.690](https://www.itu.int/rec/T-REC-X.690-202102-I/en)).

/// One DER element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DerElement<'a> {
    /// Tag in one byte, with its class and form.
    pub tag: u8,
    /// Contents, without tag and length.
    pub value: &'a [u8],
    /// Bytes behind the element.
    pub rest: &'a [u8],
}

impl<'a> DerElement<'a> {
    /// Splits the first element from the bytes behind it. Returns `None` if it is malformed or truncated.
    pub fn first(der: &'a [u8]) -> Option<Self> {
        let (&tag, rest) = der.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // The long form: one to four length bytes, for elements up to 4 GiB.
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        Some(Self { tag, value, rest })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_element_is_split_from_the_rest() {
        let long = [&[4, 0x82, 1, 0][..], &[7; 256], &[9]].concat();
        for (der, tag, value, rest) in [
            (&[5, 0][..], 5, &[][..], &[][..]),
            (&[2, 1, 3, 4, 5], 2, &[3], &[4, 5]),
            (&[2, 0x81, 1, 3], 2, &[3], &[]),
            (&[2, 0x84, 0, 0, 0, 1, 3], 2, &[3], &[]),
            (&long, 4, &[7; 256], &[9]),
        ] {
            assert_eq!(DerElement::first(der), Some(DerElement { tag, value, rest }), "{der:?}");
        }
    }

    #[test]
    fn truncated_elements_and_indefinite_lengths_are_malformed() {
        for der in [&[][..], &[2], &[2, 2, 1], &[2, 0x80, 0, 0], &[2, 0x81], &[2, 0x82, 1], &[2, 0x85, 0, 0, 0, 0, 0]] {
            assert_eq!(DerElement::first(der), None, "{der:?}");
        }
    }

    proptest! {
        #[test]
        fn an_element_has_all_bytes_of_its_text(der in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(element) = DerElement::first(&der) {
                let content = [element.value, element.rest].concat();
                prop_assert_eq!(element.tag, der[0]);
                prop_assert!(der.ends_with(&content) && der.len() - content.len() <= 6);
            }
        }
    }
}
