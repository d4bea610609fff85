-- Public procedures get the names of parameters that the documentation gives them. PostgreSQL cannot rename a parameter:
-- the old procedures are dropped, and all are made again after this. Where a view or a rule of the user needs an old
-- one, that one stays, under another name.
do $$
declare
    v_old text;
begin
    foreach v_old in array array[
        'publish(text, bytea, text, jsonb, text, bigint, integer)',
        'publish(text, text, text, jsonb, text, bigint, integer)',
        'fetch(text, integer, bigint, integer)',
        'subscribe(text, text, text, boolean, integer)',
        'unsubscribe(text, text)',
        'positions_of(integer[])',
        'confirm(text, text, bigint, integer)',
        'list_subscriptions(text, text)',
        'ensure_topic(text, integer)',
        'create_topic(text, integer)',
        'grow_topic(text, integer)',
        'delete_topic(text)',
        'purge_topic(text)',
        'set_retention(text, text, bigint, bigint)',
        'find_topics(text[])',
        'last_count(text, text, text)',
        'list_failures(integer)'
    ] loop
        begin
            execute 'drop function if exists nuncius.' || v_old;
        exception when dependent_objects_still_exist then
            execute format('alter function nuncius.%s rename to %I', v_old, split_part(v_old, '(', 1) || '_before_0010');
        end;
    end loop;
end $$;
drop function if exists nuncius.refuse_changed_partitions(integer[]);
