//! Office files since 2007, docx, pptx and xlsx: zip archives of XML parts.

use std::io::{BufReader, Cursor, Read as _, Write};

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;
use zip::ZipArchive;

use super::{Fault, broken, sheets};

/// Most bytes of one part, unpacked; the rest of it stays unread.
const MAX_PART_BYTES: u64 = 1 << 28;
/// Most slides that are read.
const MAX_SLIDES: usize = 10_000;

type Archive = ZipArchive<Cursor<Vec<u8>>>;

/// Writes the text of whichever of the three it is.
pub(super) fn read(bytes: Vec<u8>, out: &mut dyn Write) -> Result<(), Fault> {
    let mut archive = Archive::new(Cursor::new(bytes)).map_err(broken)?;
    let has = |archive: &Archive, name: &str| archive.index_for_name(name).is_some();
    if has(&archive, "word/document.xml") {
        for part in ["word/document.xml", "word/footnotes.xml", "word/endnotes.xml"] {
            if has(&archive, part) {
                read_part(&mut archive, part, out)?;
            }
        }
        return Ok(());
    }
    if has(&archive, "ppt/presentation.xml") {
        return read_slides(&mut archive, out);
    }
    if archive.file_names().flatten().any(|name| name.starts_with("xl/")) {
        return sheets::read(archive.into_inner(), out);
    }
    Err(Fault::Document("a zip archive that is no Office file".to_owned()))
}

/// In the order of their numbers, which is that of most presentations.
fn read_slides(archive: &mut Archive, out: &mut dyn Write) -> Result<(), Fault> {
    let number = |name: &str| name.strip_prefix("ppt/slides/slide")?.strip_suffix(".xml")?.parse::<u32>().ok();
    let mut numbers: Vec<u32> = archive.file_names().flatten().filter_map(|name| number(&name)).collect();
    numbers.sort_unstable();
    for number in numbers.into_iter().take(MAX_SLIDES) {
        writeln!(out, "Slide {number}")?;
        read_part(archive, &format!("ppt/slides/slide{number}.xml"), out)?;
        writeln!(out)?;
    }
    Ok(())
}

/// The text runs of a part: both formats call a run's text `t`, and a paragraph `p`.
fn read_part(archive: &mut Archive, name: &str, out: &mut dyn Write) -> Result<(), Fault> {
    let part = archive.by_name(name).map_err(broken)?;
    let mut reader = Reader::from_reader(BufReader::new(part.take(MAX_PART_BYTES)));
    let mut buffer = Vec::new();
    let mut in_text = false;
    loop {
        buffer.clear();
        match reader.read_event_into(&mut buffer).map_err(broken)? {
            Event::Start(tag) => match tag.local_name().as_ref() {
                "t" => in_text = true,
                "tab" => out.write_all(b"\t")?,
                "br" | "cr" => out.write_all(b"\n")?,
                _ => {}
            },
            Event::Empty(tag) => match tag.local_name().as_ref() {
                "tab" => out.write_all(b"\t")?,
                "br" | "cr" => out.write_all(b"\n")?,
                _ => {}
            },
            Event::End(tag) => match tag.local_name().as_ref() {
                "t" => in_text = false,
                "p" => out.write_all(b"\n")?,
                _ => {}
            },
            Event::Text(text) if in_text => out.write_all(text.xml10_content().as_bytes())?,
            Event::CData(text) if in_text => out.write_all(text.xml10_content().as_bytes())?,
            Event::GeneralRef(entity) if in_text => {
                let character = entity.resolve_char_ref().ok().flatten().map(String::from);
                let text = character.or_else(|| resolve_predefined_entity(&entity).map(str::to_owned));
                out.write_all(text.unwrap_or_default().as_bytes())?;
            }
            Event::Eof => return Ok(()),
            _ => {}
        }
    }
}
