//! Output pieces on their way to the thread that writes the files.

use tokio::sync::mpsc;

use crate::rendered::{BinaryData, RenderedPart};
pub(crate) use ropeway_core::content::{ContentPart, SharedText};

/// Text piece size. Pieces avoid copying a large output as a whole.
pub(super) const CHUNK: usize = 256 << 10;

/// One piece of an output.
pub(super) enum Piece {
    Text(Vec<u8>),
    Data {
        part: usize,
        extension: &'static str,
        base64: SharedText,
    },
    /// The output is complete. Without it, the sender was dropped.
    End,
}

pub(super) async fn send_pieces(
    content: &[ContentPart],
    data: &[(usize, BinaryData<'_>)],
    pieces: mpsc::Sender<Piece>,
) -> Result<(), mpsc::error::SendError<Piece>> {
    let mut chunk = Vec::with_capacity(CHUNK);
    for (index, part) in content.iter().enumerate() {
        let rendered = RenderedPart::new(part);
        let line_break = if index == 0 { "" } else { "\n" };
        let line;
        let texts = match &rendered {
            RenderedPart::Text { head, body } => [line_break, head, body],
            RenderedPart::Binary(data) => {
                line = data.line("");
                [line_break, &line, ""]
            }
        };
        for mut bytes in texts.map(str::as_bytes) {
            while !bytes.is_empty() {
                let (now, later) = bytes.split_at(bytes.len().min(CHUNK - chunk.len()));
                chunk.extend_from_slice(now);
                bytes = later;
                if chunk.len() == CHUNK {
                    pieces.send(Piece::Text(std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK)))).await?;
                }
            }
        }
    }
    pieces.send(Piece::Text(chunk)).await?;
    for (part, data) in data {
        pieces.send(Piece::Data { part: *part, extension: data.extension(), base64: data.share() }).await?;
    }
    pieces.send(Piece::End).await
}
