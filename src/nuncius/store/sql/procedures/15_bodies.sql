-- Bodies are bytes; these turn them into text and back.

create or replace function nuncius.as_text(bytea) returns text language sql immutable strict as $$
    select convert_from($1, 'UTF8')
$$;

create or replace function nuncius.as_bytes(text) returns bytea language sql immutable strict as $$
    select convert_to($1, 'UTF8')
$$;

-- Returns text as UTF-8. Refuses text that looks like the notation of bytes in PostgreSQL: some drivers send bytes in
-- it and name no type, and PostgreSQL takes a parameter without a type for text. p_call is the procedure for bytes.
-- (Stable, not immutable, so that PostgreSQL can put it in line.)
create or replace function nuncius.bytes_of_text(p_text text, p_call text) returns bytea language sql stable as $$
    select case
        when left(p_text, 2) <> '\x' then convert_to(p_text, 'UTF8')
        when p_text ~ '^\\x([0-9A-Fa-f]{2})*$' then nuncius.refuse_notation(p_text, p_call)
        else convert_to(p_text, 'UTF8') end
$$;

create or replace function nuncius.refuse_notation(p_text text, p_call text)
returns bytea language plpgsql stable as $$
begin
    raise invalid_parameter_value using
        message = format('it is not clear whether this is text or bytes: %s',
            case when length(p_text) > 40 then left(p_text, 40) || '...' else p_text end),
        hint = format('call nuncius.%s(...) for bytes, or cast the parameter to bytea; for this very text, call it '
            'with nuncius.as_bytes(...)', p_call);
end $$;
