"""``marey digest``: weekly summary for a user, a project or the site, on paper or by mail."""

from __future__ import annotations

import argparse
from pathlib import Path

from marey.app.people.digest import AskDigest, read_digest
from marey.app.people.digest_text import print_digest_html, print_digest_text
from marey.app.people.scheduled_digests import send_digest
from marey.cli.output import Output
from marey.cli.store_arguments import add_store, ask_place
from marey.model.errors import InvalidInput, unknown
from marey.notify.receivers import Mail
from marey.notify.settings import load_notify_settings

DESCRIPTION = """\
Summarise the last week: GPU-hours used and wasted compared with the week before, what cost most
and what to try. --mail sends it, as HTML and text. A server sends it every week by itself if its
notify file has a [[digest]] table."""
EXAMPLES = """\
  marey digest --store site.duckdb
  marey digest --user ada --html ada.html
  marey digest --project vision --mail notify.toml --receiver mail --to vision@example.org
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_store(parser)
    parser.add_argument("--user", default="", help="for this user instead of the whole site")
    parser.add_argument("--project", default="", help="for this project")
    parser.add_argument("--days", type=int, default=7, help="number of days covered (7)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write it as a page")
    parser.add_argument(
        "--mail", type=Path, metavar="FILE", help="send it, using this receivers file"
    )
    parser.add_argument("--receiver", default="", help="which mail receiver to use (the first)")
    parser.add_argument(
        "--to",
        action="append",
        default=[],
        help="send to this address instead of the receiver's own",
    )
    parser.add_argument("--url", default="", help="Marey's address, for a link at the end")


def run(args: argparse.Namespace, out: Output) -> None:
    """Print, write or send it."""
    if args.user and args.project:
        raise InvalidInput("Give either --user or --project.")
    kind = "user" if args.user else "project" if args.project else "site"
    question = AskDigest(kind, args.user or args.project, args.cluster, args.days)
    document = ask_place(args, question)
    digest = read_digest(document)
    if args.html is not None:
        args.html.write_text(print_digest_html(digest, args.url), encoding="utf-8")
        out.print_note(f"Written to {args.html}.")
    if args.mail is not None:
        sent_to = send_digest(digest, find_mail(args.mail, args.receiver), args.to, args.url)
        out.print_note(f"Sent to {', '.join(sent_to)}.")
    out.answer(document, print_digest_text(digest))


def find_mail(path: Path, name: str) -> Mail:
    """Return the receiver that sends mail."""
    receivers = load_notify_settings(path).receivers
    mails = {each.name: each for each in receivers.values() if isinstance(each, Mail)}
    if not mails:
        raise InvalidInput(f"'{path}' has no receiver of kind mail.")
    if name and name not in mails:
        raise InvalidInput(unknown("receiver", name, mails))
    return mails[name] if name else next(iter(mails.values()))
