import argparse
import json
import os
import subprocess
import sys

# Everything that the server says is data.
SERVER = json.loads(SERVER_JSON)
TOOLS = [json.loads(text) for text in TOOLS_JSON]

# Longer arguments do not fit into a command line.
LONGEST_WORD = 100_000


class UsageError(Exception):
    pass


def refuse_constant(name):
    raise ValueError(name + " is not JSON")


def parse_json(text):
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except ValueError:
        raise UsageError("expected JSON") from None


def parse(kind, text):
    """Returns the value of an option."""
    if kind == "string":
        return text
    if kind in ("integer", "number"):
        try:
            value = parse_json(text)
        except UsageError:
            value = None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UsageError("expected a number")
        return value
    if kind == "boolean":
        if text.lower() not in ("true", "false"):
            raise UsageError("expected true or false")
        return text.lower() == "true"
    if kind == "json":
        return parse_json(text)
    # Any value: JSON, or else text.
    try:
        return parse_json(text)
    except UsageError:
        return text


def converter(option):
    choices = option.get("choices")

    def convert(text):
        if choices is not None:
            for choice in choices:
                if text == (choice if isinstance(choice, str) else json.dumps(choice)):
                    return choice
            raise argparse.ArgumentTypeError("expected one of: " + ", ".join(map(shown, choices)))
        try:
            return parse(option["kind"], text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def shown(value):
    # Without control characters, which a terminal would obey.
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value)


def escaped(text):
    """argparse formats help texts with `%`."""
    return text.replace("%", "%%")


def add_option(parser, option):
    words = [option["help"]] if option["help"] else []
    if "choices" in option:
        words.append("[" + ", ".join(map(shown, option["choices"])) + "]")
    if "default" in option:
        words.append("(default: " + shown(option["default"]) + ")")
    settings = {
        "dest": option["dest"],
        "help": escaped(" ".join(words)),
        "metavar": option["metavar"],
        "type": converter(option),
        "default": None,
    }
    if option["repeated"]:
        settings["action"] = "append"
    elif option["kind"] == "boolean":
        settings.update(nargs="?", const=True)
    parser.add_argument(option["flag"], **settings)


def parsers():
    parser = argparse.ArgumentParser(
        description=SERVER["description"].replace("%(", "% ("),
        epilog="Calls tools with `ropeway`; the variable ROPEWAY names another program.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print the whole result as JSON")
    parser.add_argument("--raw", action="store_true", help="print text byte for byte, even on a terminal")
    parser.add_argument("--save", metavar="DIR", help="save images, audio and other files of the result")
    parser.add_argument("--timeout", metavar="TIME", help="time limit, such as 30s")
    parser.add_argument("--config", metavar="FILE", help="configuration file of ropeway")
    commands = parser.add_subparsers(metavar="TOOL", dest="tool", required=True)
    for tool in TOOLS:
        command = commands.add_parser(
            tool["command"],
            help=escaped(tool["summary"]),
            description=tool["description"].replace("%(", "% ("),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.set_defaults(chosen=tool)
        command.add_argument("--args", metavar="JSON", dest="args", help="all arguments as one JSON object")
        for option in tool["options"]:
            add_option(command, option)
    return parser


def arguments_of(parser, given):
    """Returns the arguments of the tool: those of `--args`, then defaults of required ones, then options."""
    try:
        arguments = parse_json(given.args) if given.args is not None else {}
    except UsageError as error:
        parser.error("argument --args: " + str(error))
    if not isinstance(arguments, dict):
        parser.error("argument --args: expected a JSON object")
    missing = []
    for option in given.chosen["options"]:
        value = getattr(given, option["dest"])
        if value is not None:
            arguments[option["key"]] = value
        elif option["required"] and option["key"] not in arguments:
            if "default" in option:
                arguments[option["key"]] = option["default"]
            else:
                missing.append(option["flag"])
    if missing:
        parser.error("the following arguments are required: " + ", ".join(missing))
    return arguments


def main():
    parser = parsers()
    given = parser.parse_args()
    arguments = json.dumps(arguments_of(parser, given))
    options = ["--config", given.config] if given.config else SERVER["options"]
    command = [os.environ.get("ROPEWAY", "ropeway"), "call", *options]
    for name in ("json", "raw"):
        if getattr(given, name):
            command.append("--" + name)
    for name in ("save", "timeout"):
        if getattr(given, name):
            command += ["--" + name, getattr(given, name)]
    try:
        if len(arguments) > LONGEST_WORD:
            command += ["--", given.chosen["name"], "-"]
            sys.exit(subprocess.run(command, input=arguments.encode(), check=False).returncode)
        command += ["--args=" + arguments, "--", given.chosen["name"]]
        os.execvp(command[0], command)
    except OSError as error:
        print("error: could not start `" + command[0] + "`: " + str(error), file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
