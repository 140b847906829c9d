//! Sessions with the packages that `make packages` installs: all there, drawn charts as files, nothing to warn of.

use std::fs;
use std::path::{Path, PathBuf};

use sidecar::sandbox::SandboxBackend;
use sidecar::sandbox::process::ProcessSettings;

use super::{ExecutionResult, Place, start_as};

/// The interpreter with everything.
pub(super) fn interpreter() -> PathBuf {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(".tools/sandbox/full/.installed");
    let path = fs::read_to_string(&installed);
    path.unwrap_or_else(|error| panic!("{}: {error}: run `make packages`", installed.display())).trim().into()
}

async fn start() -> Place {
    start_as(|settings| ProcessSettings { python: interpreter(), ..settings }).await
}

fn names(result: &ExecutionResult) -> Vec<&str> {
    assert_eq!((result.return_code, result.stderr.as_str()), (0, ""), "{}", result.stdout);
    result.files.iter().map(|file| file.name.as_str()).collect()
}

#[tokio::test]
async fn every_package_people_expect_is_there_and_is_told() {
    let place = start().await;
    let session = place.session().await;
    let code = r#"
import numpy, pandas, matplotlib, openpyxl, PIL, scipy, sympy, pypdf, docx, pptx, xlsxwriter, seaborn, sklearn
import io, scipy.optimize, sklearn.linear_model
n = docx.Document(); n.add_paragraph("a"); n.save("a.docx")
n = pptx.Presentation(); n.save("a.pptx")
PIL.Image.new("RGB", (8, 8), "red").save("a.pdf")
fit = sklearn.linear_model.LinearRegression().fit([[0], [1], [2]], [1, 3, 5])
print(len(pypdf.PdfReader("a.pdf").pages), docx.Document("a.docx").paragraphs[0].text, fit.predict([[3]]).round(6))
print(round(scipy.optimize.brentq(lambda x: x * x - 4, 0, 5), 6), sympy.integrate(sympy.Symbol("x")), sympy.diff("x**3", "x"))
frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "é"]})
for engine in ("openpyxl", "xlsxwriter"):
    frame.to_excel("a.xlsx", engine=engine, index=False)
    print(pandas.read_excel("a.xlsx").equals(frame))
"#;
    assert_eq!(place.output(&session, code).await, "1 a [7.]\n2.0 x**2/2 3*x**2\nTrue\nTrue\n");
    let detail = place.sandbox.capability().detail;
    for name in ["numpy", "pandas", "matplotlib", "scipy", "sklearn", "seaborn", "docx", "pptx", "PIL"] {
        assert!(detail.contains(name), "{name} is not in: {detail}");
    }
    // A shell's Python is the same one.
    let told =
        place.shell(&session, "python3 -c 'import sys, pandas; print(sys.prefix)' && python3 -m pip list | wc -l");
    let told = told.await;
    let prefix = interpreter().parent().and_then(Path::parent).unwrap().display().to_string();
    assert_eq!(told.lines().next(), Some(prefix.as_str()), "{told}");
    assert!(told.lines().nth(1).unwrap().trim().parse::<u32>().unwrap() > 13, "{told}");
}

#[tokio::test]
async fn each_show_and_what_stays_open_is_a_picture() {
    let place = start().await;
    let session = place.session().await;
    let drawn = place.run(&session, "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.show()").await;
    assert_eq!(names(&drawn), ["figure_1.png"]);
    // What was shown is closed: the next is a figure of its own, and so is each that is open at the end.
    let more = "for n in (1, 2):\n    plt.plot([n])\n    plt.show()\nplt.figure()\nplt.figure()\nprint(len(plt.get_fignums()))";
    let drawn = place.run(&session, more).await;
    assert_eq!(names(&drawn), ["figure_2.png", "figure_3.png", "figure_4.png", "figure_5.png"]);
    assert_eq!(drawn.stdout, "2\n");
    // Shown before the code failed, so it is there.
    let failed = place.run(&session, "plt.plot([1])\nplt.show()\n1 / 0").await;
    assert_eq!((failed.return_code, failed.files.len()), (1, 1), "{}", failed.stderr);
    let saved = "[open(f'figure_{n}.png', 'rb').read(4) for n in range(1, 7)] == [b'\\x89PNG'] * 6";
    assert_eq!(place.output(&session, saved).await, "True\n");
    // A chart that its library drew, and the picture of a fork, which is nobody's.
    let others = "import os, seaborn\nseaborn.lineplot(x=[1, 2], y=[3, 4])\nif os.fork() == 0:\n    plt.show()\n    os._exit(0)\nn = os.wait()";
    assert_eq!(names(&place.run(&session, others).await), ["figure_7.png"]);
    assert_eq!(place.output(&session, "len([n for n in os.listdir() if n.endswith('.png')])").await, "7\n");
}

#[tokio::test]
async fn no_session_looks_for_fonts_or_writes_caches() {
    let place = start().await;
    let session = place.session().await;
    let code = r"
import os, matplotlib.font_manager, matplotlib.pyplot as plt
plt.title('a')
plt.savefig('a.svg')
plt.close()
folder = os.environ['MPLCONFIGDIR']
sorted(name.split('-')[0] for name in os.listdir(folder) if os.path.islink(os.path.join(folder, name))), [
    name for name in os.listdir(folder) if not os.path.islink(os.path.join(folder, name))]
";
    assert_eq!(place.output(&session, code).await, "(['fontlist', 'matplotlibrc'], [])\n");
    // Compiled ahead: the interpreter of sessions may not write what it compiles.
    let code = "import importlib.util, numpy, pandas, sklearn\n[m.__name__ for m in (numpy, pandas, sklearn, plt) if not os.path.exists(importlib.util.cache_from_source(m.__file__))]";
    assert_eq!(place.output(&session, code).await, "[]\n");
}

#[tokio::test]
async fn text_in_other_scripts_is_drawn_with_the_fonts_of_this_system() {
    let place = start().await;
    let session = place.session().await;
    let families = place.output(&session, "import matplotlib\nmatplotlib.rcParams['font.family'][1:]").await;
    println!("fonts for other scripts: {families}");
    // Greek and Cyrillic are in the font that matplotlib brings; the rest is drawn where a font of this system has it.
    let mut text = "Ω Я".to_owned();
    for (family, sample) in [("CJK", "中文 日本語 한국어"), ("WenQuanYi", "中文"), ("IPA", "日本語"), ("Emoji", "😀")]
    {
        if families.contains(family) {
            text.push_str(sample);
        }
    }
    let code = format!("import matplotlib.pyplot as plt\nplt.title('{text}')\nplt.savefig('a.png')\nplt.close()");
    assert_eq!(place.output(&session, &code).await, "");
}
