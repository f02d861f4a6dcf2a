//! A truncated output's remainder, and the notices about it that the model reads.

use super::rendered::thousands;

/// The name of the tool that reads stored outputs.
pub(super) const READ_MORE: &str = "read_more";

/// Maximum bytes in a page's last line.
pub(super) const FOOTER_BYTES: usize = 300;

/// A stored output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredOutput {
    /// Its name, such as `o3`.
    pub(super) name: String,
    /// Its binary data's files, by part number; `None` if the store keeps text only.
    pub(super) files: Option<Vec<(usize, String)>>,
}

impl StoredOutput {
    /// Creates an output without binary data.
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), files: Some(Vec::new()) }
    }
}

/// The part of an output that is not sent to the model.
#[derive(Clone, Debug)]
pub(super) enum Remainder {
    /// Outputs are not stored.
    Dropped,
    /// The whole output is stored and can be read with `read_more`.
    Stored(StoredOutput),
    /// The output could not be stored.
    Lost,
}

impl Remainder {
    /// Returns the notice about text omitted from byte `from` on, with `total` bytes in all; `None` if no text is
    /// omitted.
    pub(super) fn text_notice(&self, from: usize, total: usize) -> Option<String> {
        let omitted = total.checked_sub(from).filter(|omitted| *omitted > 0)?;
        let omitted = format!("{} of {} bytes omitted", thousands(omitted), thousands(total));
        Some(match self {
            Self::Dropped => format!("[{omitted}]"),
            Self::Stored(StoredOutput { name, .. }) => {
                format!("[{omitted}; call `{READ_MORE}` with output \"{name}\" and from {from} to continue]")
            }
            Self::Lost => format!("[{omitted} and could not be stored]"),
        })
    }

    /// Returns the notice about binary data that was omitted; parts are counted from 1.
    pub(super) fn data_notice(&self, part: usize) -> String {
        let too_large = ": too large to show";
        let lost = || format!("{too_large} and could not be stored");
        match self {
            Self::Dropped | Self::Stored(StoredOutput { files: None, .. }) => too_large.to_owned(),
            Self::Stored(StoredOutput { files: Some(files), .. }) => {
                let file = files.iter().find(|(number, _)| *number == part);
                file.map_or_else(lost, |(_, file)| format!("{too_large}, stored as `{file}`"))
            }
            Self::Lost => lost(),
        }
    }
}
