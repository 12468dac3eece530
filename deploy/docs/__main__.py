"""`python -m deploy.docs` (`make docs`): regenerate the marked blocks of the README files."""

from deploy.docs.blocks import files, rewrite

if __name__ == "__main__":
    for file in files():
        before = file.read_text()
        after = rewrite(before)
        if after != before:
            file.write_text(after)
            print(f"wrote {file}")
