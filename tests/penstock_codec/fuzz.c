/* Any bytes for the compiled codec, under AddressSanitizer: `make codec-fuzz`. The first bytes choose what is done.
 *
 * Beside memory errors it finds results that contradict each other: a batch that the codec has made of a body must be
 * one that it renders, and a line that it has found must be one value.
 */
#include <stdlib.h>
#include <string.h>

#include "../../penstock_codec/src/chain.h"
#include "../../penstock_codec/src/check.h"
#include "../../penstock_codec/src/columns.h"
#include "../../penstock_codec/src/crc.h"
#include "../../penstock_codec/src/encode.h"
#include "../../penstock_codec/src/encode_rows.h"
#include "../../penstock_codec/src/head.h"
#include "../../penstock_codec/src/hpack.h"
#include "../../penstock_codec/src/huffman.h"
#include "../../penstock_codec/src/latest.h"
#include "../../penstock_codec/src/lines.h"
#include "../../penstock_codec/src/members.h"
#include "../../penstock_codec/src/number.h"
#include "../../penstock_codec/src/placement.h"
#include "../../penstock_codec/src/pointer.h"
#include "../../penstock_codec/src/render.h"

static void must(int holds)
{
    if (!holds) {
        abort();
    }
}

/* Reads one batch as columns; their memory must be what their counts say. */
static void read_columns(const uint8_t *batch, size_t size)
{
    struct columns columns = {0};
    if (columns_add(&columns, batch, size, 0, 1000) && columns_add(&columns, batch, size, 1, 2)) {
        must(columns.offsets.size == 8 * columns.count && columns.key.count == columns.count);
        must(!columns.count || columns.header_ends.size == 4 * (columns.count + 1));
        must(columns.header_name.count == columns.header_value.count);
        must(!columns.value.count || columns.value.ends.size == 4 * (columns.value.count + 1));
    }
    columns_free(&columns);
}

/* Adds the keys of a batch to a small table, and keeps records by it. */
static void keep_latest(const uint8_t *batch, size_t size, uint8_t how)
{
    uint8_t slots[16 * LATEST_SLOT_BYTES] = {0};
    struct latest latest = {slots, 16, {1, 2}};
    struct kept kept = {0};
    int64_t added = latest_add(&latest, batch, size);
    must(added >= -1 && added <= 16);
    if (latest_keep(&latest, batch, size, how & 3, how & 4, &kept)) {
        must(kept.count >= 0 && kept.records.size <= size);
        must(added < 0 || kept.count >= added || (how & 3));
    }
    output_free(&kept.records);
}

/* Reads two parts of the bytes as rows of typed members; each column must have a value or a null for each row. */
static void fuzz_members(const uint8_t *data, size_t size, uint8_t how)
{
    static const char names[] = "abcdef";
    struct member all[8] = {0};
    struct members members = {.all = all, .count = 8, .top_members = 6, .readable_end = data + size,
        .skips_others = how & 128};
    for (size_t index = 0; index < 8; index++) {
        all[index].kind = (enum member_kind)((index + how) % 6);
        all[index].name = (const uint8_t *)names + index % 6;
        all[index].name_size = 1;
        all[index].first = index % 3 ? 6 : 0;
        all[index].members = 2;
    }
    const uint8_t *half = data + size / 2;
    members_begin(&members, how);
    if (members_add(&members, data, half) && members_add(&members, half, data + size)) {
        members_add_null(&members);
        must(members_end(&members) && members.rows == 3);
        for (size_t index = 0; index < 8; index++) {
            const struct member *one = &all[index];
            bool is_number = one->kind == MEMBER_BIGINT || one->kind == MEMBER_DOUBLE;
            must(one->rows == 3 && one->is_there.size == 1 && one->nulls >= 1 && one->nulls <= 3);
            must(one->values.size == 24 || !is_number);
            must(one->ends.size == (one->kind == MEMBER_STRING ? 16 : 0));
        }
    }
    for (size_t index = 0; index < 8; index++) {
        output_free(&all[index].values);
        output_free(&all[index].ends);
        output_free(&all[index].is_there);
    }
}

static enum render_end render_all(const uint8_t *data, size_t size, uint8_t how, int64_t *count)
{
    struct chain chain;
    if (chain_check(data, size, 0, how & 3, 3, &chain)) {
        must(chain.begin <= chain.end && chain.end <= size);
    }
    chain_is_compressed(data, size);
    records_are_right(data, size, how);
    read_columns(data, size);
    keep_latest(data, size, how);
    struct render render = {
        .data = data, .size = size, .records_left = how & 0x40 ? 3 : -1, .bytes_left = how & 0x80 ? 200 : INT64_MAX,
        .form = how & 3, .style = (how >> 2 & 3) % 3, .offset = how >> 4 & 3, .last_offset = -1,
    };
    enum render_end end = render_batches(&render);
    must(render.position <= size);
    *count = render.count;
    output_free(&render.output);
    return end;
}

static void check_line(const uint8_t *body, struct span row)
{
    struct json_limits limits = {.depth_max = 128, .digits_max = 1000, .is_line = true};
    if (row.length != SPAN_NULL) {
        const uint8_t *begin = body + row.begin;
        must(json_value_end(begin, begin + row.length, &limits) == begin + row.length);
    }
}

static void fuzz_lines(const uint8_t *body, size_t size, uint8_t how)
{
    struct spans spans = {0};
    struct json_limits limits = {.depth_max = 128, .digits_max = 1000, .is_line = true};
    if (lines_find(body, size, limits, &spans) == FOUND && spans.count) {
        struct values_batch batch = {
            .body = body, .rows = spans.rows, .count = spans.count, .key_bytes = SPAN_NULL, .timestamp = 1};
        for (size_t index = 0; index < spans.count; index++) {
            check_line(body, spans.rows[index]);
        }
        size_t bytes = values_batch_bytes(&batch, size);
        must(bytes > BATCH_HEADER_BYTES);
        uint8_t *made = malloc(bytes);
        values_batch_put(&batch, made, bytes);
        int64_t count;
        must(render_all(made, bytes, how & 0xF, &count) == RENDER_DONE);
        must(count == (int64_t)spans.count);
        free(made);
    }
    spans_free(&spans);
}

/* Makes a batch of the rows, and renders it. */
static void make_batch(
    const uint8_t *body, size_t size, const struct row *rows, size_t count, bool is_line, bool is_ours)
{
    struct rows_batch batch = {
        .body = body, .size = size, .rows = rows, .count = count, .key = {NULL, SPAN_NULL},
        .entry = {NULL, SPAN_NULL}, .timestamp = 5, .is_line = is_line};
    size_t bytes = rows_batch_bytes(&batch);
    must(!is_ours || bytes);
    if (bytes) {
        uint8_t *made = malloc(bytes);
        int64_t rendered;
        rows_batch_put(&batch, made, bytes);
        enum render_end end = render_all(made, bytes, 0, &rendered);
        must(!is_ours || (end == RENDER_DONE && rendered == (int64_t)count));
        free(made);
    }
}

/* The body and what has lost its escapes, one after the other. */
static void make_batch_of(const uint8_t *body, size_t size, const struct rows *rows, bool is_line)
{
    size_t more = rows->unescaped.size;
    uint8_t *both = malloc(size + more + 1);
    memcpy(both, body, size);
    if (more) {
        memcpy(both + size, rows->unescaped.bytes, more);
    }
    make_batch(both, size + more, rows->rows, rows->count, is_line, true);
    free(both);
}

static void fuzz_objects(const uint8_t *body, size_t size, uint8_t how)
{
    struct rows rows = {0};
    struct json_limits limits = {.depth_max = 128, .digits_max = 1000};
    bool is_line = how & 1;
    enum found found = is_line ? object_lines_find(body, size, limits, &rows) : objects_find(body, size, limits, &rows);
    if (found == FOUND && rows.count) {
        struct placement placement = {how >> 4, how & 2 ? 3 : -1, 0, 1000};
        int32_t *targets = malloc(rows.count * sizeof *targets);
        choose_partitions(&placement, body, size, rows.rows, rows.count, targets);
        free(targets);
        make_batch_of(body, size, &rows, is_line);
    }
    rows_free(&rows);
}

static void fuzz_pointer(const uint8_t *body, size_t size, uint8_t how)
{
    static const uint8_t names[] = "a0";
    struct rows rows = {0};
    struct json_limits limits = {.depth_max = 128, .digits_max = 1000};
    struct pointer pointer = {.steps = {{names, 1}, {names + 1, 1}, {names, 1}}, .count = how % 4};
    if (pointed_lines_find(body, size, limits, &pointer, &rows) == FOUND && rows.count) {
        make_batch_of(body, size, &rows, true);
    }
    rows_free(&rows);
}

/* Rows from anywhere: they must be of the body, or no batch is made. */
static void fuzz_rows(const uint8_t *data, size_t size)
{
    struct row rows[2];
    if (size >= sizeof rows) {
        memcpy(rows, data, sizeof rows);
        make_batch(data + sizeof rows, size - sizeof rows, rows, 2, false, false);
    }
}

/* Spans from anywhere: they must be of the body, or no batch is made. */
static void fuzz_spans(const uint8_t *data, size_t size)
{
    struct span rows[4];
    if (size < sizeof rows) {
        return;
    }
    memcpy(rows, data, sizeof rows);
    struct values_batch batch = {
        .body = data + sizeof rows, .rows = rows, .count = 4, .key = data, .key_bytes = 3, .timestamp = -1};
    size_t bytes = values_batch_bytes(&batch, size - sizeof rows);
    if (bytes) {
        uint8_t *made = malloc(bytes);
        values_batch_put(&batch, made, bytes);
        free(made);
    }
}

/* Records behind a true header, so that the fuzzer need not find one. */
static void fuzz_records(const uint8_t *data, size_t size, uint8_t how)
{
    size_t bytes = BATCH_HEADER_BYTES + size;
    uint8_t *batch = calloc(1, bytes);
    int64_t count;
    uint8_t records = size ? data[0] % 8 : 0;
    batch[10] = (uint8_t)((bytes - BATCH_PREFIX_BYTES) >> 8);
    batch[11] = (uint8_t)(bytes - BATCH_PREFIX_BYTES);
    batch[BATCH_MAGIC_AT] = BATCH_MAGIC;
    batch[BATCH_LAST_DELTA_AT + 3] = (uint8_t)(records - 1);
    memset(batch + BATCH_LAST_DELTA_AT, records ? 0 : 0xFF, 3);
    batch[BATCH_COUNT_AT + 3] = records;
    if (size) {
        memcpy(batch + BATCH_HEADER_BYTES, data + 1, size - 1);
        render_all(batch, bytes - 1, how, &count);
        batch[11]--;
        render_all(batch, bytes - 1, how, &count);
    }
    free(batch);
}

/* A head of pieces that are cut out of it, and the same head without its last byte, which is none. */
static void fuzz_head(const uint8_t *data, size_t size, uint8_t how)
{
    struct head_shape shape = {.gaps = how % (HEAD_GAPS_MAX + 1)};
    struct head_value values[HEAD_GAPS_MAX];
    if (size < HEAD_GAPS_MAX) {
        return;
    }
    const uint8_t *head = data + HEAD_GAPS_MAX;
    size_t head_bytes = size - HEAD_GAPS_MAX, at = 0, fixed = 0;
    for (size_t gap = 0; gap <= shape.gaps; gap++) {
        size_t most = gap < shape.gaps ? data[gap] & 15 : head_bytes, left = head_bytes - at;
        shape.pieces[gap] = (struct head_piece){head + at, most < left ? most : left};
        at += shape.pieces[gap].size;
        fixed += shape.pieces[gap].size;
        if (gap < shape.gaps) {
            size_t value = data[gap] >> 4;
            shape.kinds[gap] = (enum head_gap)((how >> 4) + gap) % HEAD_GAP_END;
            at += value < head_bytes - at ? value : head_bytes - at;
        }
    }
    if (head_match(&shape, head, head_bytes, values)) {
        for (size_t gap = 0; gap < shape.gaps; gap++) {
            must(values[gap].size && values[gap].begin + values[gap].size <= head_bytes);
            must(head_value_fits(shape.kinds[gap], head + values[gap].begin, values[gap].size));
            fixed += values[gap].size;
        }
        must(fixed == head_bytes);
        must(!head_bytes || !head_match(&shape, head, head_bytes - 1, values) || shape.gaps);
    }
}

/* A code without its last byte has no other text before its end. */
static void fuzz_huffman(const uint8_t *code, size_t size)
{
    size_t text_size = 0, shorter_size = 0, room = huffman_text_max(size);
    uint8_t *text = malloc(room), *shorter = malloc(room);
    if (huffman_decode(code, size, text, &text_size)) {
        must(text_size < room && text_size <= size * 8 / 5);
        if (size && huffman_decode(code, size - 1, shorter, &shorter_size)) {
            must(shorter_size <= text_size && !memcmp(text, shorter, shorter_size));
        }
    }
    free(text);
    free(shorter);
}

/* The bytes of a text of a block; broken codes are none. */
static bool text_bytes(struct hpack_reader *reader, size_t *bytes)
{
    struct hpack_text text;
    if (!hpack_text(reader, &text)) {
        return false;
    }
    must(text.bytes >= reader->block && text.bytes + text.size == reader->block + reader->at);
    if (text.is_coded) {
        uint8_t *decoded = malloc(huffman_text_max(text.size));
        bool is_right = huffman_decode(text.bytes, text.size, decoded, bytes);
        free(decoded);
        return is_right;
    }
    *bytes = text.size;
    return true;
}

static void evict(struct hpack_table *table, size_t bytes)
{
    for (size_t *field; (field = hpack_evict(table, bytes));) {
        free(field);
    }
}

/* Adds a field, which is the bytes of its name, to the table. */
static void keep_field(struct hpack_table *table, size_t name, size_t value)
{
    size_t bytes = name + value + HPACK_FIELD_BYTES, *field = malloc(sizeof *field);
    *field = name;
    evict(table, bytes);
    if (!hpack_insert(table, field, bytes)) {
        must(!table->count && !table->bytes && bytes > table->bytes_max);
        free(field);
    }
    must(table->bytes <= table->bytes_max && table->count * HPACK_FIELD_BYTES <= table->bytes);
}

/* Blocks of a connection, each as long as the byte before it says. */
static void fuzz_hpack(const uint8_t *data, size_t size)
{
    struct hpack_table table = {.bytes_max = HPACK_TABLE_BYTES};
    enum hpack_kind kind = HPACK_END;
    while (size && kind == HPACK_END) {
        size_t block_size = data[0] < size - 1 ? data[0] : size - 1, number;
        struct hpack_reader reader = {.block = data + 1, .size = block_size};
        while ((kind = hpack_next(&reader, &table, &number)) > HPACK_BROKEN) {
            must(reader.at <= reader.size);
            size_t name = 0, value;
            if (kind == HPACK_SIZE) {
                must(number <= HPACK_TABLE_BYTES);
                table.bytes_max = number;
                evict(&table, 0);
                continue;
            }
            must(number <= HPACK_STATIC + table.count);
            if (number > HPACK_STATIC) {
                name = *(size_t *)hpack_field(&table, number);
            }
            if (kind == HPACK_INDEXED) {
                continue;
            }
            if ((!number && !text_bytes(&reader, &name)) || !text_bytes(&reader, &value)) {
                kind = HPACK_BROKEN;
                break;
            }
            if (kind == HPACK_KEPT) {
                keep_field(&table, name, value);
            }
        }
        data += 1 + block_size;
        size -= 1 + block_size;
    }
    table.bytes_max = 0;
    evict(&table, 0);
    must(!table.count && !table.bytes);
}

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count;
    (void)arguments;
    crc_prepare();
    huffman_prepare();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t count;
    if (size < 2 || size > 60000) {
        return 0;
    }
    /* Memory of its own, so that a read behind the end is found. */
    size_t rest = size - 2;
    uint8_t *copy = malloc(rest ? rest : 1);
    memcpy(copy, data + 2, rest);
    switch (data[0] % 11) {
    case 0:
        fuzz_lines(copy, rest, data[1]);
        must(numbers_shapes(copy, copy + rest).large <= rest / 3);
        break;
    case 1:
        fuzz_spans(copy, rest);
        break;
    case 2:
        fuzz_records(copy, rest, data[1]);
        break;
    case 3:
        fuzz_objects(copy, rest, data[1]);
        break;
    case 4:
        fuzz_rows(copy, rest);
        break;
    case 5:
        fuzz_pointer(copy, rest, data[1]);
        break;
    case 6:
        fuzz_members(copy, rest, data[1]);
        break;
    case 7:
        fuzz_head(copy, rest, data[1]);
        break;
    case 8:
        fuzz_huffman(copy, rest);
        break;
    case 9:
        fuzz_hpack(copy, rest);
        break;
    default:
        render_all(copy, rest, data[1], &count);
    }
    free(copy);
    return 0;
}
