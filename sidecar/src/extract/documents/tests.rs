use std::io::{Cursor, Write as _};

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;

fn text(kind: Document, bytes: Vec<u8>) -> Result<String, String> {
    let mut out = Vec::new();
    let read = read(kind, bytes, &mut out).map_err(|fault| fault.to_string());
    read.map(|()| String::from_utf8(out).unwrap())
}

fn zipped(parts: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in parts {
        archive.start_file(*name, SimpleFileOptions::default()).unwrap();
        archive.write_all(content.as_bytes()).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

/// A PDF of these objects, numbered from 1, the first of them its catalog.
fn pdf(objects: &[&str]) -> Vec<u8> {
    let mut file = b"%PDF-1.4\n".to_vec();
    let mut places = Vec::new();
    for (number, object) in objects.iter().enumerate() {
        places.push(file.len());
        write!(file, "{} 0 obj\n{object}\nendobj\n", number + 1).unwrap();
    }
    let table = file.len();
    write!(file, "xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1).unwrap();
    for place in places {
        writeln!(file, "{place:010} 00000 n ").unwrap();
    }
    let size = objects.len() + 1;
    write!(file, "trailer\n<</Size {size}/Root 1 0 R>>\nstartxref\n{table}\n%%EOF\n").unwrap();
    file
}

fn stream(content: &str) -> String {
    format!("<</Length {}>>\nstream\n{content}\nendstream", content.len())
}

#[test]
fn a_word_file_is_read_with_its_notes_and_without_what_was_deleted() {
    let document = r#"<?xml version="1.0"?><w:document xmlns:w="w"><w:body>
        <w:p><w:r><w:t>Profit &amp; loss</w:t><w:tab/><w:t xml:space="preserve"> of &#50;026</w:t></w:r></w:p>
        <w:p><w:r><w:delText>gone</w:delText><w:t>second</w:t><w:br/><w:t>line</w:t></w:r></w:p>
        </w:body></w:document>"#;
    let notes = r#"<w:footnotes xmlns:w="w"><w:p><w:t>a note</w:t></w:p></w:footnotes>"#;
    let file = zipped(&[("word/document.xml", document), ("word/footnotes.xml", notes)]);
    assert_eq!(text(Document::Office, file).unwrap(), "Profit & loss\t of 2026\nsecond\nline\na note\n");
}

#[test]
fn slides_are_read_in_the_order_of_their_numbers() {
    let slide =
        |text: &str| format!(r#"<p:sld xmlns:a="a" xmlns:p="p"><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:sld>"#);
    let (second, tenth) = (slide("two"), slide("ten"));
    let file = zipped(&[
        ("ppt/presentation.xml", "<p/>"),
        ("ppt/slides/slide10.xml", &tenth),
        ("ppt/slides/slide2.xml", &second),
        ("ppt/slides/_rels/slide2.xml.rels", "<r/>"),
    ]);
    assert_eq!(text(Document::Office, file).unwrap(), "Slide 2\ntwo\n\nSlide 10\nten\n\n");
}

#[test]
fn a_sheet_is_rows_of_cells_with_tabs_between() {
    let rows = r#"<row r="1"><c r="A1" t="inlineStr"><is><t>name</t></is></c><c r="C1" t="inlineStr"><is><t>two
lines</t></is></c></row><row r="9"><c r="B9"><v>1.5</v></c><c r="C9"><f>1+1</f><v>2</v></c><c r="XFD9" t="b"><v>1</v></c></row>"#;
    let sheet = format!(
        r#"<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>{rows}</sheetData></worksheet>"#
    );
    let book = r#"<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="Year &amp; sum" sheetId="1" r:id="rId1"/></sheets></workbook>"#;
    let relations = r#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>"#;
    let root = r#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>"#;
    let file = zipped(&[
        ("_rels/.rels", root),
        ("xl/workbook.xml", book),
        ("xl/_rels/workbook.xml.rels", relations),
        ("xl/worksheets/sheet1.xml", &sheet),
    ]);
    let far = "\t".repeat(64);
    assert_eq!(
        text(Document::Office, file).unwrap(),
        format!("Sheet Year & sum\nname\t\ttwo lines\n\t1.5\t2{far}true\n\n")
    );
}

#[test]
fn a_page_is_read_without_tags_scripts_and_styles() {
    let page =
        b"<html><head><title>t</title><style>p{}</style><script>evil()</script></head><body><h1>Head</h1><p>One \
        &eacute; <a href=\"http://127.0.0.1/\">link</a></p><table><tr><td>a</td><td>b</td></tr></table></body></html>";
    let read = text(Document::Html, page.to_vec()).unwrap();
    assert!(read.contains("Head") && read.contains("One \u{e9} [link][1]"), "{read}");
    assert!(read.ends_with("[1]: http://127.0.0.1/\n") && !read.contains("evil") && !read.contains("p{}"), "{read}");
}

#[test]
fn a_pdf_is_read_page_by_page_and_one_bad_page_spoils_no_other() {
    let font = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>";
    let page = |content: &str| format!("<</Type/Page/Parent 2 0 R/Contents {content}/Resources<</Font<</F 4 0 R>>>>>>");
    let (good, bad) = (page("7 0 R"), page("8 0 R"));
    let file = pdf(&[
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Count 3/Kids[5 0 R 6 0 R 5 0 R]/MediaBox[0 0 600 800]>>",
        "null",
        font,
        &good,
        &bad,
        &stream("BT /F 12 Tf 100 700 Td (Good page) Tj ET"),
        &stream("BT /F 12 Tf 100 700 Td (Bad) Tj (page) Tj /Nowhere gs ET"),
    ]);
    let read = text(Document::Pdf, file).unwrap();
    assert_eq!(read.matches("Good page").count(), 2, "{read}");
    assert!(read.contains("[the rest of this page could not be read]"), "{read}");
}

#[test]
fn what_is_no_document_of_its_kind_is_refused() {
    for (kind, bytes) in [
        (Document::Pdf, b"no pdf".to_vec()),
        (Document::Pdf, b"%PDF-1.4\n%%EOF".to_vec()),
        (Document::Office, b"PK\x03\x04 cut".to_vec()),
        (Document::Office, zipped(&[("content.xml", "<x/>")])),
        (Document::Office, zipped(&[("word/document.xml", "<w:p><w:t>one</w:wrong>")])),
    ] {
        assert!(text(kind, bytes).is_err(), "{kind:?}");
    }
}
